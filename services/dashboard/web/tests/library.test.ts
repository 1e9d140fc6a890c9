/** Whether the page offers a job's compiled model, and what it says where it does not. */
import { expect, test } from "vitest";
import { hasLibrary, noLibrary } from "../src/job/library";
import { job as sample } from "./samples";

const job = (changes: object) => sample({ exported: true, report: null, ...changes });
const library = { digest: "d", bytes: 1, cpu_features: [] };

test("a library that is stored can be downloaded", () => {
  expect(hasLibrary(job({ report: { library } }))).toBe(true);
  expect(noLibrary(job({ report: { library } }))).toBeUndefined();
});

test("a first version may have one, which the server knows", () => {
  expect(hasLibrary(job({}))).toBe(true);
});

test("where there is none, the reason is said", () => {
  expect(noLibrary(job({ report: { no_library_reason: "It was left out." } }))).toBe("It was left out.");
  expect(noLibrary(job({ report: {} }))).toContain("before libraries were stored");
  expect(noLibrary(job({ exported: false }))).toContain("once the job is done");
  expect(noLibrary(job({ exported: false, export_deleted_at: 1 }))).toContain("were deleted");
});
