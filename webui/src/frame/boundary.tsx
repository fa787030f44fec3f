// A mistake in one page must not take the frame with it.
import type { ReactNode } from "react";
import { Component } from "react";
import { ErrorNote } from "../parts";

export class Boundary extends Component<{ children: ReactNode }, { error: unknown }> {
  override state = { error: undefined };

  static getDerivedStateFromError(error: unknown) {
    return { error };
  }

  override render() {
    if (this.state.error === undefined) return this.props.children;
    return (
      <div className="page">
        <ErrorNote error={this.state.error} retry={() => window.location.reload()} />
      </div>
    );
  }
}
