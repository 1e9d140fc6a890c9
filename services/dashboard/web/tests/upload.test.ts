import { expect, it, vi } from "vitest";
import { upload } from "../src/jobs/upload";

it("sends a model with the page's secret, without which the cookie counts for nothing", async () => {
  const sent = new Map<string, string>();
  class Request {
    status = 200;
    responseText = '{"id": "m"}';
    upload = {};
    onload = (): void => {};
    open = (): void => {};
    setRequestHeader = (name: string, value: string): unknown => sent.set(name, value);
    send = (): void => this.onload();
  }
  vi.stubGlobal("document", { baseURI: "http://h/" });
  vi.stubGlobal("localStorage", { "mallorn-session": "secret" });
  vi.stubGlobal("XMLHttpRequest", Request);
  expect(await upload(new File(["x"], "m.onnx"), () => {})).toEqual({ id: "m" });
  expect(sent.get("X-Mallorn-Session")).toBe("secret");
});
