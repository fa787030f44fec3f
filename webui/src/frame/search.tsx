// The search box: `/` goes there, typing asks the server, arrows and Enter open what it found.
import { useQuery } from "@tanstack/react-query";
import type { KeyboardEvent } from "react";
import { useDeferredValue, useEffect, useRef, useState } from "react";
import type { Answer } from "../api";
import { api } from "../api";
import { ErrorNote, Icon, State } from "../parts";
import { navigate } from "../route";
import { useKeys } from "./keys";

type Hit = Answer<"/api/v1/search">["hits"][number];

const pathOf = (hit: Hit): string => `/${hit.kind}s/${hit.id}`;

/** The value a moment after typing stops, so that each letter is not a question. */
function useSettled(value: string, delay = 150): string {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), delay);
    return () => clearTimeout(timer);
  }, [value, delay]);
  return settled;
}

export function Search() {
  const input = useRef<HTMLInputElement>(null);
  const [text, setText] = useState("");
  const [open, setOpen] = useState(false);
  const [place, setPlace] = useState(0);
  const asked = useSettled(useDeferredValue(text.trim()));
  const found = useQuery({
    queryKey: ["search", asked],
    queryFn: ({ signal }) => api.get("/api/v1/search", { query: { q: asked }, signal }),
    enabled: asked !== "",
    staleTime: 2000,
  });
  const hits = asked && text ? (found.data?.hits ?? []) : [];
  useKeys({ "/": ["Search", () => input.current?.focus()] });

  const go = (hit: Hit | undefined) => {
    if (!hit) return;
    navigate(pathOf(hit));
    setText("");
    setOpen(false);
    input.current?.blur();
  };
  const keys = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") setPlace(Math.min(place + 1, hits.length - 1));
    else if (event.key === "ArrowUp") setPlace(Math.max(place - 1, 0));
    else if (event.key === "Enter") go(hits[place]);
    else if (event.key === "Escape") input.current?.blur();
    else return;
    event.preventDefault();
  };
  const shown = open && text.trim() !== "";
  return (
    <div className="find" onFocus={() => setOpen(true)} onBlur={() => setOpen(false)}>
      <Icon name="search" />
      <input
        ref={input}
        type="text"
        role="combobox"
        aria-label="Search experiments, runs, models and projects"
        aria-expanded={shown && hits.length > 0}
        aria-controls="find-list"
        aria-activedescendant={shown && hits[place] ? `find-${place}` : undefined}
        autoComplete="off"
        placeholder="Search"
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setPlace(0);
        }}
        onKeyDown={keys}
      />
      <kbd aria-hidden>/</kbd>
      {shown && hits.length > 0 && (
        <div className="find-list" id="find-list" role="listbox" aria-label="Found">
          {hits.map((hit, index) => (
            <div
              key={pathOf(hit)}
              id={`find-${index}`}
              role="option"
              aria-selected={index === place}
              // Before the input loses its focus, which would close the list.
              onPointerDown={(event) => event.preventDefault()}
              onClick={() => go(hit)}
              onPointerEnter={() => setPlace(index)}
            >
              <span className="kind">
                {hit.kind} {hit.kind === "model" ? "" : hit.id}
              </span>
              <span className="grow clip">
                {hit.name} <span className="muted">{hit.detail}</span>
              </span>
              {hit.state && <State state={hit.state} />}
            </div>
          ))}
        </div>
      )}
      {shown && hits.length === 0 && (
        <div className="find-list">
          {found.error ? (
            <ErrorNote error={found.error} />
          ) : (
            <p role="status">{found.isFetching || asked !== text.trim() ? "Searching" : `Nothing has “${asked}” in its name or number.`}</p>
          )}
        </div>
      )}
    </div>
  );
}
