/** A small network as ONNX bytes, made here: something to tune for those who have no model at hand. */

export const EXAMPLE_NAME = "example-mlp.onnx";
const WIDTHS = [256, 512, 512, 64];
const FLOAT = 1;
const IR_VERSION = 8;
const OPSET = 17;

/** Three products with biases, each but the last behind a ReLU; weights are drawn alike every time. */
export function exampleModel(): File {
  return new File([modelBytes() as Uint8Array<ArrayBuffer>], EXAMPLE_NAME);
}

export function modelBytes(): Uint8Array {
  const layers = WIDTHS.slice(1).map((wide, at) => ({ at, from: WIDTHS[at] ?? 0, to: wide, last: at === WIDTHS.length - 2 }));
  const nodes = layers.flatMap(({ at, last }) => {
    const out = last ? "y" : `sum${at}`;
    const sum = node("Gemm", [at === 0 ? "x" : `relu${at - 1}`, `w${at}`, `b${at}`], out);
    return last ? [sum] : [sum, node("Relu", [out], `relu${at}`)];
  });
  const weights = layers.flatMap(({ at, from, to }) => [tensor(`w${at}`, [from, to], at), tensor(`b${at}`, [to], at + 100)]);
  const graph = join([
    ...nodes.map((bytes) => field(1, bytes)),
    text(2, "example"),
    ...weights.map((bytes) => field(5, bytes)),
    field(11, value("x", [1, WIDTHS[0] ?? 0])),
    field(12, value("y", [1, WIDTHS.at(-1) ?? 0])),
  ]);
  return join([number(1, IR_VERSION), text(2, "mallorn"), field(7, graph), field(8, number(2, OPSET))]);
}

function node(op: string, inputs: readonly string[], output: string): Uint8Array {
  return join([...inputs.map((name) => text(1, name)), text(2, output), text(4, op)]);
}

function tensor(name: string, dims: readonly number[], seed: number): Uint8Array {
  const size = dims.reduce((product, dim) => product * dim, 1);
  const raw = new DataView(new ArrayBuffer(size * 4));
  let state = seed + 1;
  for (let at = 0; at < size; at += 1) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    raw.setFloat32(at * 4, (state / 2 ** 32 - 0.5) / 8, true);
  }
  return join([...dims.map((dim) => number(1, dim)), number(2, FLOAT), text(8, name), field(9, new Uint8Array(raw.buffer))]);
}

function value(name: string, dims: readonly number[]): Uint8Array {
  const shape = join(dims.map((dim) => field(1, number(1, dim))));
  return join([text(1, name), field(2, field(1, join([number(1, FLOAT), field(2, shape)])))]);
}

/* Protocol buffers: a key of field number and kind, then a varint, or bytes behind their length. */
function number(id: number, of: number): Uint8Array {
  return join([varint(id << 3), varint(of)]);
}

function field(id: number, bytes: Uint8Array): Uint8Array {
  return join([varint((id << 3) | 2), varint(bytes.length), bytes]);
}

function text(id: number, words: string): Uint8Array {
  return field(id, new TextEncoder().encode(words));
}

function varint(of: number): Uint8Array {
  const bytes: number[] = [];
  let rest = of;
  for (; rest > 127; rest = Math.floor(rest / 128)) bytes.push((rest % 128) | 128);
  return Uint8Array.from([...bytes, rest]);
}

function join(parts: readonly Uint8Array[]): Uint8Array {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}
