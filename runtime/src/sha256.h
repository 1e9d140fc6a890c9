// SHA-256 of files, by the processor's instructions where it has them: a model of a gigabyte takes under a second.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace mallorn {

class Sha256 {
 public:
  // The digest of a file in hexadecimal digits; empty if it cannot be read.
  static std::string OfFile(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return "";
    Sha256 hash;
    std::vector<uint8_t> bytes(1 << 20);
    uint64_t total = 0;
    size_t count;
    do {
      file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
      count = static_cast<size_t>(file.gcount());
      total += count;
      if (count < bytes.size()) hash.Pad(&bytes, count, total);
      hash.Update(bytes.data(), bytes.size() / kBlock);
    } while (count == 1 << 20);
    return file.bad() ? "" : hash.Digits();
  }

 private:
  static constexpr size_t kBlock = 64;

  static void Pad(std::vector<uint8_t>* bytes, size_t count, uint64_t total) {
    bytes->resize(count);
    bytes->push_back(0x80);
    while (bytes->size() % kBlock != kBlock - 8) bytes->push_back(0);
    for (int shift = 56; shift >= 0; shift -= 8) bytes->push_back(static_cast<uint8_t>(total * 8 >> shift));
  }

  void Update(const uint8_t* data, size_t blocks) {
#if defined(__x86_64__)
    static const bool has_instructions = [] {
      unsigned a, b, c, d;
      bool has_sse41 = __get_cpuid(1, &a, &b, &c, &d) && (c & 1u << 19);
      return has_sse41 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & 1u << 29);
    }();
    if (has_instructions) return UpdateByInstructions(data, blocks);
#endif
    for (; blocks > 0; --blocks, data += kBlock) UpdateBlock(data);
  }

  void UpdateBlock(const uint8_t* data) {
    auto turn = [](uint32_t x, int by) { return x >> by | x << (32 - by); };
    uint32_t w[64];
    for (int i = 0; i < 16; ++i) {
      w[i] = uint32_t{data[4 * i]} << 24 | uint32_t{data[4 * i + 1]} << 16 | uint32_t{data[4 * i + 2]} << 8 |
             data[4 * i + 3];
    }
    for (int i = 16; i < 64; ++i) {
      uint32_t s0 = turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3;
      uint32_t s1 = turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10;
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    std::array<uint32_t, 8> s = state_;
    for (int i = 0; i < 64; ++i) {
      uint32_t one = turn(s[4], 6) ^ turn(s[4], 11) ^ turn(s[4], 25), choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
      uint32_t add = s[7] + one + choice + kRounds[i] + w[i];
      uint32_t zero = turn(s[0], 2) ^ turn(s[0], 13) ^ turn(s[0], 22);
      uint32_t most = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
      s = {add + zero + most, s[0], s[1], s[2], s[3] + add, s[4], s[5], s[6]};
    }
    for (int i = 0; i < 8; ++i) state_[i] += s[i];
  }

#if defined(__x86_64__)
  __attribute__((target("sha,sse4.1"))) void UpdateByInstructions(const uint8_t* data, size_t blocks) {
    // The instructions keep the state as (A, B, E, F) and (C, D, G, H), the first letter in the highest word.
    __m128i abef = _mm_set_epi32(int(state_[0]), int(state_[1]), int(state_[4]), int(state_[5]));
    __m128i cdgh = _mm_set_epi32(int(state_[2]), int(state_[3]), int(state_[6]), int(state_[7]));
    const __m128i order = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    for (; blocks > 0; --blocks, data += kBlock) {
      __m128i first_abef = abef, first_cdgh = cdgh, w[4];
      for (int i = 0; i < 16; ++i) {
        __m128i& words = w[i % 4];
        if (i < 4) {
          words = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(data) + i), order);
        } else {
          __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(words, w[(i + 1) % 4]),
                                      _mm_alignr_epi8(w[(i + 3) % 4], w[(i + 2) % 4], 4));
          words = _mm_sha256msg2_epu32(sum, w[(i + 3) % 4]);
        }
        __m128i add = _mm_add_epi32(words, _mm_loadu_si128(reinterpret_cast<const __m128i*>(kRounds) + i));
        cdgh = _mm_sha256rnds2_epu32(cdgh, abef, add);
        abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(add, 0x0e));
      }
      abef = _mm_add_epi32(abef, first_abef);
      cdgh = _mm_add_epi32(cdgh, first_cdgh);
    }
    alignas(16) uint32_t x[4], y[4];
    _mm_store_si128(reinterpret_cast<__m128i*>(x), abef);
    _mm_store_si128(reinterpret_cast<__m128i*>(y), cdgh);
    state_ = {x[3], x[2], y[3], y[2], x[1], x[0], y[1], y[0]};
  }
#endif

  std::string Digits() const {
    std::string text;
    for (uint32_t word : state_) {
      for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[word >> shift & 15];
    }
    return text;
  }

  static constexpr uint32_t kRounds[64] = {
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
      0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
      0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
      0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
      0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
      0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
      0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
      0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
  };
  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
};

}  // namespace mallorn
