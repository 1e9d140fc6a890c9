/** Puts the page together. */
import { createRoot } from "react-dom/client";
import { takeClaim } from "./api/client";
import { App } from "./App";
import "./styles.css";

takeClaim();
const root = document.getElementById("root");
if (root !== null) createRoot(root).render(<App />);
