/** Whether the page offers a job's compiled model, and what it says where it does not. */
import { describe, expect, it } from "vitest";
import { noDownload } from "../src/job/download";
import { job as sample } from "./samples";

const job = (changes: object) => sample({ exported: true, report: null, ...changes });
const library = { digest: "d", bytes: 1, cpu_features: [] };

describe("a library", () => {
  it("can be downloaded where it is stored, or where only the server knows of it", () => {
    expect(noDownload(job({ report: { library } }), "library")).toBeUndefined();
    expect(noDownload(job({}), "library")).toBeUndefined();
  });

  it("that is not there has a reason, and schedules need none", () => {
    expect(noDownload(job({ report: { no_library_reason: "It was left out." } }), "library")).toBe("It was left out.");
    expect(noDownload(job({ report: {} }), "library")).toContain("before libraries were stored");
    expect(noDownload(job({ report: {} }), "schedules")).toBeUndefined();
  });

  it("comes with the end of the job, and goes with the export", () => {
    expect(noDownload(job({ exported: false }), "library")).toContain("once the job is done");
    expect(noDownload(job({ exported: false, export_deleted_at: 1 }), "library")).toContain("were deleted");
  });
});
