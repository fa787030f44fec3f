// The cross-hair that charts of one page share. Moves go past React: they come with every movement of the mouse.
import { createContext, useContext } from "react";

type Hearer = (x: number | undefined, source: object) => void;

export class CrossHair {
  private hearers = new Set<Hearer>();

  /** `undefined`: the mouse left the chart. */
  move(x: number | undefined, source: object): void {
    for (const hearer of this.hearers) hearer(x, source);
  }

  hear(hearer: Hearer): () => void {
    this.hearers.add(hearer);
    return () => void this.hearers.delete(hearer);
  }
}

export const CrossHairContext = createContext<CrossHair | undefined>(undefined);

/** The cross-hair of the charts around, if they share one: `<CrossHairContext value={...}>`. */
export const useCrossHair = (): CrossHair | undefined => useContext(CrossHairContext);
