/** What stands where something is not there (yet, at all, or any more), or cannot be drawn: no page is ever blank. */
import { Component, type ReactNode } from "react";
import type { ApiError } from "../api/client";
import type { Resource } from "../api/resource";
import { formatRoute } from "../route";
import { Press } from "./parts";

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
      {retry && <Press words="Try again" onPress={retry} />}
    </div>
  );
}

/** A resource in all its states; while a refresh fails, what is known stays with a line above it. */
export function Shown<Answer>(props: {
  of: Resource<Answer>;
  what: string;
  /** What stands where it is a list without items. */
  none?: ReactNode;
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
      {props.none !== undefined && isEmpty(data) ? props.none : props.children(data)}
    </>
  );
}

function isEmpty(list: unknown): boolean {
  const items = Array.isArray(list) ? list : (list as { items?: unknown[] }).items;
  return items?.length === 0;
}

type Props = { children: ReactNode };
type State = { broken: Error | null };

/** Give it a key that names the page: another page starts anew. */
export class Boundary extends Component<Props, State> {
  override state: State = { broken: null };

  static getDerivedStateFromError(error: unknown): State {
    return { broken: error instanceof Error ? error : new Error(String(error)) };
  }

  override render(): ReactNode {
    const { broken } = this.state;
    if (broken === null) return this.props.children;
    return (
      <>
        <h1>This page broke</h1>
        <div className="state failed" role="alert">
          <strong>What the coordinator answered could not be drawn.</strong>
          <span className="hint">The jobs go on. Where the service was updated meanwhile, loading the page anew mends it.</span>
          <code>{broken.message}</code>
          <div className="buttons">
            <Press words="Try again" onPress={() => this.setState({ broken: null })} />
            <Press words="Load anew" onPress={() => window.location.reload()} />
          </div>
          <a href={formatRoute(["jobs"])}>To the jobs</a>
        </div>
      </>
    );
  }
}
