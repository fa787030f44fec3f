/// <reference types="vitest/config" />
// How the page is built into the Python package, and how `npm run dev` reaches a running `det ui`.
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// The link that `det ui --no-open` printed in another terminal: DET_UI='http://127.0.0.1:8111/?token=...' npm run dev
const link = new URL(process.env.DET_UI ?? "http://127.0.0.1:8111/");
const headers = { authorization: `Bearer ${link.searchParams.get("token") ?? ""}` };

export default defineConfig({
  base: "/",
  plugins: [react()],
  build: {
    outDir: "../src/determined/server/webui",
    emptyOutDir: true,
    // A data: address would need a hole in the Content-Security-Policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 900,
    rolldownOptions: {
      output: {
        // Libraries in files of their own: they change less often than the page, and ECharts is
        // fetched only by pages that draw with it.
        codeSplitting: {
          groups: [
            { name: "echarts", test: /node_modules\/(echarts|zrender|tslib)\// },
            { name: "uplot", test: /node_modules\/uplot\// },
            { name: "react", test: /node_modules\/(react|react-dom|scheduler|@tanstack)\// },
          ],
        },
      },
    },
  },
  server: { proxy: { "/api": { target: link.origin, headers } } },
  // A browser's document takes a second to make: tests that need one begin with "// @vitest-environment jsdom".
  test: { environment: "node", include: ["src/**/*.test.{ts,tsx}"] },
});
