/** A table that stays quick with ten thousand rows: only those in view are drawn. */
import { memo, useLayoutEffect, useMemo, useRef, useState, type ReactNode } from "react";
import { Cards, OrderChoice, useNarrow } from "./Cards";
import { formatOrder, nextOrder, parseOrder, sorted, type Order, type Value } from "./sort";
import { span, step } from "./window";

export type Column<Row> = {
  key: string;
  title: ReactNode;
  /** What the heading means, where that is not plain. */
  help?: string;
  /** Share of the width, in any unit that all columns of a table use. */
  width: number;
  numeric?: boolean;
  cell: (row: Row) => ReactNode;
  /** Without it the column cannot be sorted by. */
  value?: (row: Row) => Value;
};

type Props<Row> = {
  label: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  rowKey: (row: Row) => string;
  order?: Order;
  onOrder?: (order: Order) => void;
  rowClass?: (row: Row) => string;
  rowHeight?: number;
  /** On a narrow screen its rows are cards: for tables that are never long. */
  cards?: boolean;
};

const ROW_HEIGHT = 38;

export function Table<Row>(props: Props<Row>): ReactNode {
  const { columns, rows, order, rowHeight = ROW_HEIGHT } = props;
  const asCards = useNarrow() && props.cards === true;
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 800 });
  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return;
    const look = (): void => {
      const now = { top: step(rowHeight, element.scrollTop), height: element.clientHeight };
      setView((seen) => (seen.top === now.top && seen.height === now.height ? seen : now));
    };
    const watcher = new ResizeObserver(look);
    watcher.observe(element);
    element.addEventListener("scroll", look, { passive: true });
    return () => {
      watcher.disconnect();
      element.removeEventListener("scroll", look);
    };
  }, [rowHeight, asCards]);
  const value = columns.find((column) => column.key === order?.key)?.value;
  const ordered = useMemo(
    () => (order === undefined ? [...rows] : sorted(rows, value, order.down)),
    // The columns are made anew at every drawing; the key names what they do.
    [rows, order?.key, order?.down],
  );
  if (asCards) {
    const { label, rowKey, rowClass, onOrder } = props;
    return (
      <>
        {order && onOrder && <OrderChoice columns={columns} order={formatOrder(order)} onOrder={(text) => onOrder(parseOrder(text, text))} />}
        <Cards label={label} columns={columns} rows={ordered} rowKey={rowKey} rowClass={rowClass} />
      </>
    );
  }
  const { first, last, before, after } = span(ordered.length, rowHeight, view.top, view.height);
  const width = columns.reduce((sum, column) => sum + column.width, 0);
  return (
    <div className="table-box" ref={box} tabIndex={0} role="group" aria-label={props.label}>
      <table aria-rowcount={ordered.length + 1}>
        <colgroup>
          {columns.map((column) => (
            <col key={column.key} style={{ width: `${(100 * column.width) / width}%` }} />
          ))}
        </colgroup>
        <thead>
          <tr aria-rowindex={1}>
            {columns.map((column) => (
              <Heading key={column.key} column={column} order={order} onOrder={props.onOrder} />
            ))}
          </tr>
        </thead>
        <tbody>
          <Spacer height={before} columns={columns.length} />
          {ordered.slice(first, last).map((row, at) => (
            <Row key={props.rowKey(row)} row={row} columns={columns} index={first + at + 2} mark={props.rowClass?.(row)} height={rowHeight} />
          ))}
          <Spacer height={after} columns={columns.length} />
        </tbody>
      </table>
    </div>
  );
}

type RowProps<Row> = { row: Row; columns: readonly Column<Row>[]; index: number; mark: string | undefined; height: number };

function PlainRow<Row>({ row, columns, index, mark, height }: RowProps<Row>): ReactNode {
  return (
    <tr aria-rowindex={index} className={mark} style={{ height }}>
      {columns.map((column) => (
        <td key={column.key} className={column.numeric ? "numeric" : undefined}>
          {column.cell(row)}
        </td>
      ))}
    </tr>
  );
}

/** While a table is scrolled, rows that stay in view are not drawn again. */
const Row = memo(PlainRow) as typeof PlainRow;

type HeadingProps<Row> = {
  column: Column<Row>;
  order: Order | undefined;
  onOrder: ((order: Order) => void) | undefined;
};

function Heading<Row>({ column, order, onOrder }: HeadingProps<Row>): ReactNode {
  const { key, title, value, numeric } = column;
  const help = column.help ?? (typeof title === "string" ? title : undefined);
  const side = numeric ? "numeric" : undefined;
  if (value === undefined || order === undefined || onOrder === undefined) {
    return (
      <th scope="col" className={side} title={help}>
        {title}
      </th>
    );
  }
  const here = order.key === key;
  return (
    <th scope="col" className={side} title={help} aria-sort={here ? (order.down ? "descending" : "ascending") : "none"}>
      <button type="button" className="sort" onClick={() => onOrder(nextOrder(order, key, numeric === true))}>
        {title}
        <span aria-hidden="true">{here ? (order.down ? " ↓" : " ↑") : ""}</span>
      </button>
    </th>
  );
}

function Spacer({ height, columns }: { height: number; columns: number }): ReactNode {
  if (height === 0) return null;
  return (
    <tr aria-hidden="true" className="spacer">
      <td colSpan={columns} style={{ height }} />
    </tr>
  );
}
