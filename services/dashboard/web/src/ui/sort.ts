/** The order of a table's rows, as its headings and the address write it: `key` upwards, `-key` downwards. */

/** One for all: `localeCompare` makes itself a new one for every pair. */
const NAMES = new Intl.Collator(undefined, { numeric: true });

export type Value = number | string | null | undefined;
export type Order = { key: string; down: boolean };

export function parseOrder(text: string | undefined, standard: string): Order {
  const order = text || standard;
  return order.startsWith("-") ? { key: order.slice(1), down: true } : { key: order, down: false };
}

export function formatOrder({ key, down }: Order): string {
  return down ? `-${key}` : key;
}

/** Another column starts with what matters there; the same one turns round. */
export function nextOrder(order: Order, key: string, downFirst: boolean): Order {
  return order.key === key ? { key, down: !order.down } : { key, down: downFirst };
}

/** Rows in order; those without a value come last in either direction. */
export function sorted<Row>(rows: readonly Row[], value: ((row: Row) => Value) | undefined, down: boolean): Row[] {
  if (value === undefined) return [...rows];
  return [...rows].sort((one, other) => {
    const [left, right] = [value(one), value(other)];
    if (left == null || right == null) return Number(left == null) - Number(right == null);
    const order =
      typeof left === "number" && typeof right === "number"
        ? left - right
        : NAMES.compare(String(left), String(right));
    return down ? -order : order;
  });
}
