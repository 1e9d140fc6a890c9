/** Where a page cannot be drawn, a sentence and a way out stand in its place: none is ever blank. */
import { Component, type ReactNode } from "react";
import { formatRoute } from "../route";

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
            <button type="button" onClick={() => this.setState({ broken: null })}>
              Try again
            </button>
            <button type="button" onClick={() => window.location.reload()}>
              Load anew
            </button>
          </div>
          <a href={formatRoute(["jobs"])}>To the jobs</a>
        </div>
      </>
    );
  }
}
