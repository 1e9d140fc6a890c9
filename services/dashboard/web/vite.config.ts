import { defineConfig } from "vite";

// Relative addresses: the page works below any path prefix. Inlined assets would need `data:` in the policy.
export default defineConfig({
  base: "./",
  build: {
    outDir: "../static",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: false,
    license: { fileName: "licences.md" }, // of the packages whose code is in the page
    target: "es2022",
  },
  server: { proxy: { "/api": "http://127.0.0.1:8000" } },
});
