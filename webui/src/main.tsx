// Styles first: what parts and pages say about themselves comes after, and wins.
import "./style/tokens.css";
import "./style/base.css";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { startLive } from "./api/live";
import { App } from "./app";

const root = document.getElementById("root");
if (root) {
  startLive();
  createRoot(root).render(
    <StrictMode>
      <App />
    </StrictMode>,
  );
}
