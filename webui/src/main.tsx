import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { startLive } from "./api/live";
import { App } from "./app";
import "./style/tokens.css";
import "./style/base.css";

const root = document.getElementById("root");
if (root) {
  startLive();
  createRoot(root).render(
    <StrictMode>
      <App />
    </StrictMode>,
  );
}
