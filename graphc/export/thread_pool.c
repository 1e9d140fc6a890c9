/* A thread pool for the parallel loops of a compiled model, linked into its library to replace TVM's.
 *
 * TVM's runtime gives every thread one fixed part of a loop, binds threads to cores, and lets waiting threads
 * yield their core repeatedly: if other programs run, that costs a time slice per loop. Here a loop has more
 * parts than threads, any idle thread takes the next part, no thread is bound, and long waits sleep.
 *
 * When TVM loads a library, it stores the address of its own launcher in `__TVMBackendParallelLaunch` if that
 * symbol is visible. Here it is hidden. On systems other than Linux this file is empty, and TVM's pool is used.
 */
#if defined(__linux__)

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#ifndef POOL_THREADS
#define POOL_THREADS 256 /* cores of the target; fewer if the process may use fewer */
#endif
#define MOST_THREADS 256
#define PARTS_EACH 4 /* parts of a loop per thread */
#define LOOPS 8      /* of callers at the same time; further callers run alone */
#define SPIN_NS 50000 /* about the cost of a wake-up */
#define SPINS_A_LOOK 16

/* The argument of each part of a loop: TVMParallelGroupEnv. Barriers between parts are not supported. */
typedef struct {
  void* barriers;
  int32_t parts;
} Env;

typedef int (*Body)(int part, Env* env, void* closure);

/* The remaining parts of one thread's share: the loop's number, the next part, the end. */
typedef struct {
  uint64_t __attribute__((aligned(64))) left;
} Share;

typedef struct {
  int32_t is_taken;
  uint32_t number;
  Body body;
  void* closure;
  Env env;
  int32_t failed_part;
  int32_t caller_sleeps;
  int32_t __attribute__((aligned(64))) unfinished;
  Share shares[MOST_THREADS];
} Loop;

static Loop loops[LOOPS];
static pthread_t helpers[MOST_THREADS];
static int32_t threads, started, starting, stopping, sleepers;
static int32_t requested;          /* by mallorn_set_threads; 0: wanted_threads decides */
static unsigned char cores[1024];  /* mask of the cores of helpers, if its size is not 0 */
static size_t cores_bytes;
static pid_t owner; /* helpers do not survive a fork */
static int32_t __attribute__((aligned(64))) posted;
static __thread int is_inside;

#define GET(x) __atomic_load_n(&(x), __ATOMIC_SEQ_CST)
#define PUT(x, value) __atomic_store_n(&(x), (value), __ATOMIC_SEQ_CST)
#define ADD(x, value) __atomic_add_fetch(&(x), (value), __ATOMIC_SEQ_CST)
#define TAKE(x) (__atomic_exchange_n(&(x), 1, __ATOMIC_SEQ_CST) == 0)

static void sleep_while(int32_t* word, int32_t value) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake(int32_t* word, int count) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Poll a word for SPIN_NS; return whether it came to differ from the value. */
static int spin_while(int32_t* word, int32_t value) {
  int64_t until = now_ns() + SPIN_NS;
  do {
    for (int i = 0; i < SPINS_A_LOOK; ++i) {
      if (GET(*word) != value) return 1;
#if defined(__x86_64__) || defined(__i386__)
      __builtin_ia32_pause();
#elif defined(__aarch64__)
      __asm__ volatile("yield");
#endif
    }
  } while (now_ns() < until);
  return 0;
}

/* Take a part of a share: the owner from the front, other threads from the back; -1 if none is left. */
static int take(Share* share, int is_owner, Loop* loop, Body* body, void** closure) {
  uint64_t left = GET(share->left);
  for (;;) {
    uint32_t next = (left >> 16) & 0xffff, end = left & 0xffff;
    if (next >= end) return -1;
    /* Body and closure belong to this loop if the share is unchanged afterwards: the loop cannot end before. */
    *body = GET(loop->body);
    *closure = GET(loop->closure);
    uint64_t after = is_owner ? left + (1 << 16) : left - 1;
    if (__atomic_compare_exchange_n(&share->left, &left, after, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
      return (int)(is_owner ? next : end - 1);
  }
}

/* Compute parts of a loop until all are taken; return whether the thread computed any. */
static int help(Loop* loop, int thread) {
  Body body;
  void* closure;
  int part, helped = 0, count = GET(threads);
  for (int away = 0; away < count; ++away) {
    Share* share = &loop->shares[(thread + away) % count];
    while ((part = take(share, away == 0, loop, &body, &closure)) >= 0) {
      if (body(part, &loop->env, closure) != 0) PUT(loop->failed_part, part);
      if (ADD(loop->unfinished, -1) == 0 && GET(loop->caller_sleeps)) wake(&loop->unfinished, 1);
      helped = 1;
    }
  }
  return helped;
}

static int help_anybody(int thread) {
  int helped = 0;
  for (int i = 0; i < LOOPS; ++i)
    if (GET(loops[i].unfinished) > 0) helped |= help(&loops[i], thread);
  return helped;
}

static void* run_helper(void* thread) {
  is_inside = 1;
  if (cores_bytes > 0) syscall(SYS_sched_setaffinity, 0, cores_bytes, cores);
  while (!GET(stopping)) {
    int32_t seen = GET(posted);
    if (help_anybody((int)(intptr_t)thread) || spin_while(&posted, seen)) continue;
    ADD(sleepers, 1);
    sleep_while(&posted, seen);
    ADD(sleepers, -1);
  }
  return NULL;
}

static int allowed_cores(void) {
  unsigned char allowed[1024] = {0};
  int count = 0;
  if (syscall(SYS_sched_getaffinity, 0, sizeof allowed, allowed) <= 0) return 1;
  for (size_t bit = 0; bit < 8 * sizeof allowed; ++bit) count += allowed[bit / 8] >> bit % 8 & 1;
  return count;
}

/* Return the threads requested or configured for TVM, otherwise the target's cores, limited to the cores allowed. */
static int wanted_threads(void) {
  if (requested > 0) return requested;
  const char* configured = getenv("TVM_NUM_THREADS");
  if (configured == NULL) configured = getenv("OMP_NUM_THREADS");
  int count = configured != NULL ? atoi(configured) : allowed_cores();
  if (configured == NULL && count > POOL_THREADS) count = POOL_THREADS;
  return count < 1 ? 1 : count > MOST_THREADS ? MOST_THREADS : count;
}

/* Start the pool. Loops launched by other threads meanwhile run without it. */
static void start(void) {
  if (!TAKE(starting)) return;
  if (owner != 0)
    for (int i = 0; i < LOOPS; ++i) loops[i].is_taken = loops[i].unfinished = 0;
  sleepers = started = 0;
  PUT(threads, wanted_threads());
  while (started < threads - 1) {
    void* number = (void*)(intptr_t)(started + 1);
    if (pthread_create(&helpers[started], NULL, run_helper, number) != 0) break;
    ++started;
  }
  PUT(owner, getpid());
  PUT(starting, 0);
}

/* Stop all helpers, also before the library is unloaded. */
__attribute__((destructor)) static void stop(void) {
  if (owner != getpid()) return;
  PUT(stopping, 1);
  ADD(posted, 1);
  wake(&posted, INT_MAX);
  for (int i = 0; i < started; ++i) pthread_join(helpers[i], NULL);
  PUT(stopping, 0);
}

static Loop* free_loop(void) {
  for (int i = 0; i < LOOPS; ++i)
    if (!GET(loops[i].is_taken) && TAKE(loops[i].is_taken)) return &loops[i];
  return NULL;
}

static void pause_briefly(void) {
  struct timespec pause = {0, SPIN_NS};
  nanosleep(&pause, NULL);
}

/* Set the number of threads, the caller's included, and the cores of all helpers (a mask as sched_setaffinity takes
 * it); 0 bytes: wherever the process may run. Wait until no loop runs; loops launched meanwhile run on their caller's
 * thread alone. The next loop starts the pool. Return 0, or -1 if the arguments are out of bounds. */
#if defined(__cplusplus)
extern "C"
#endif
    __attribute__((visibility("default"))) int
    mallorn_set_threads(int count, const unsigned char* mask, size_t bytes) {
  if (count < 0 || count > MOST_THREADS || bytes > sizeof cores) return -1;
  while (!TAKE(starting)) pause_briefly();
  if (owner != 0 && owner != getpid()) /* after a fork */
    for (int i = 0; i < LOOPS; ++i) loops[i].is_taken = loops[i].unfinished = 0;
  for (int i = 0; i < LOOPS; ++i)
    while (!TAKE(loops[i].is_taken)) pause_briefly();
  stop();
  PUT(owner, 0);
  requested = count;
  for (size_t i = 0; i < bytes; ++i) cores[i] = mask[i];
  cores_bytes = bytes;
  for (int i = 0; i < LOOPS; ++i) PUT(loops[i].is_taken, 0);
  PUT(starting, 0);
  return 0;
}

static void post(Loop* loop, Body body, void* closure, int parts) {
  uint64_t number = ++loop->number;
  PUT(loop->body, body);
  PUT(loop->closure, closure);
  loop->env.parts = parts;
  PUT(loop->failed_part, -1);
  PUT(loop->caller_sleeps, 0);
  PUT(loop->unfinished, parts);
  for (int i = 0; i < threads; ++i) {
    uint64_t next = (uint64_t)parts * i / threads, end = (uint64_t)parts * (i + 1) / threads;
    PUT(loop->shares[i].left, number << 32 | next << 16 | end);
  }
  ADD(posted, 1);
  if (GET(sleepers) > 0) wake(&posted, threads - 1);
}

/* Wait until helpers have computed the last parts. */
static void wait_for(Loop* loop) {
  int32_t unfinished = GET(loop->unfinished);
  while (unfinished != 0 && spin_while(&loop->unfinished, unfinished)) unfinished = GET(loop->unfinished);
  if (unfinished == 0) return;
  PUT(loop->caller_sleeps, 1);
  while ((unfinished = GET(loop->unfinished)) != 0) sleep_while(&loop->unfinished, unfinished);
}

static int launch(Body body, void* closure, int parts) {
  Loop* loop = NULL;
  if (GET(owner) != getpid()) start();
  if (GET(owner) == getpid() && threads > 1 && !is_inside) loop = free_loop();
  if (loop != NULL && GET(owner) != getpid()) { /* the number of threads has just changed */
    PUT(loop->is_taken, 0);
    loop = NULL;
  }
  if (loop == NULL) {
    Env whole = {NULL, 1};
    return body(0, &whole, closure);
  }
  post(loop, body, closure, parts > 0 ? parts : threads * PARTS_EACH);
  is_inside = 1;
  help(loop, 0);
  is_inside = 0;
  wait_for(loop);
  /* TVM stores an error in the thread that raised it, so the caller runs the failed part again. */
  int failed = GET(loop->failed_part);
  int result = failed < 0 ? 0 : body(failed, &loop->env, closure);
  PUT(loop->is_taken, 0);
  return result;
}

#if defined(__cplusplus)
extern "C"
#else
extern
#endif
    int (*__TVMBackendParallelLaunch)(Body, void*, int);
__attribute__((visibility("hidden"))) int (*__TVMBackendParallelLaunch)(Body, void*, int) = launch;

#endif
