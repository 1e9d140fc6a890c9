/** The rows of a table as cards, for a screen that is too narrow for its columns. */
import { useEffect, useState, type ReactNode } from "react";
import { Choice, type Option } from "./fields";
import type { Column } from "./Table";

export const useNarrow = (): boolean => useMedia("(max-width: 44rem)");

/** Whether the screen, or what its reader prefers, is so now. */
export function useMedia(question: string): boolean {
  const [is, setIs] = useState(matchMedia(question).matches);
  useEffect(() => {
    const query = matchMedia(question);
    const changed = (): void => setIs(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, [question]);
  return is;
}

type Props<Row> = { label: string; columns: readonly Column<Row>[]; rows: readonly Row[]; rowKey: (row: Row) => string; rowClass: ((row: Row) => string) | undefined };

export function Cards<Row>({ label, columns, rows, rowKey, rowClass }: Props<Row>): ReactNode {
  return (
    <ul className="row-cards" aria-label={label}>
      {rows.map((row) => (
        <li key={rowKey(row)} className={rowClass?.(row)}>
          {columns.map((column) => (
            <div key={column.key} className={`cell-${column.key}`}>
              {typeof column.title === "string" && <span className="cell-title">{column.title}</span>}
              <div className="cell">{column.cell(row)}</div>
            </div>
          ))}
        </li>
      ))}
    </ul>
  );
}

type OrderProps<Row> = { columns: readonly Column<Row>[]; order: string; onOrder: (order: string) => void };

/** Cards have no headings to sort by. */
export function OrderChoice<Row>({ columns, order, onOrder }: OrderProps<Row>): ReactNode {
  const sortable = columns.filter(({ value, title }) => value !== undefined && typeof title === "string");
  const options = sortable.flatMap(({ key, title }): Option[] => [[key, `${title} ↑`], [`-${key}`, `${title} ↓`]]);
  return (
    <div className="toolbar">
      <Choice label="Order" value={order} options={options} onChoose={onOrder} />
    </div>
  );
}
