/** What stands where something is not there: yet, at all, or any more. */
import type { ReactNode } from "react";
import type { ApiError } from "../api/client";
import type { Resource } from "../api/resource";

export function Loading({ what }: { what: string }): ReactNode {
  return (
    <div className="state" role="status">
      <span className="spinner" aria-hidden="true" /> Loading {what} …
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ReactNode }): ReactNode {
  return (
    <div className="state">
      <strong>{title}</strong>
      {children}
    </div>
  );
}

export function Failed({ error, retry }: { error: ApiError; retry?: () => void }): ReactNode {
  return (
    <div className="state failed" role="alert">
      <strong>{error.message}</strong>
      {error.hint && <span className="hint">{error.hint}</span>}
      {retry && (
        <button type="button" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}

/** A resource in all its states; while a refresh fails, what is known stays with a line above it. */
export function Shown<Answer>(props: {
  of: Resource<Answer>;
  what: string;
  children: (data: Answer) => ReactNode;
}): ReactNode {
  const { data, error, refresh } = props.of;
  if (data === undefined) return error ? <Failed error={error} retry={refresh} /> : <Loading what={props.what} />;
  return (
    <>
      {error && (
        <p className="stale" role="status">
          {error.message} What is shown is from before.
        </p>
      )}
      {props.children(data)}
    </>
  );
}
