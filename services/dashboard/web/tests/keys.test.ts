import { describe, expect, it } from "vitest";
import type { ApiKey } from "../src/api/types";
import { inOrder, isOver, stateOf, wanted } from "../src/keys/state";

const NOW = 1_000_000;
const key = (changes: Partial<ApiKey>): ApiKey => ({ id: "a", owner: "ada", name: "ci", scopes: ["read"], created_at: 1, expires_at: null, last_used_at: null, revoked_at: null, previous_until: null, ...changes });

describe("a key's state", () => {
  it("says for how long it opens something", () => {
    expect(stateOf(key({}), NOW)).toBe("good");
    expect(stateOf(key({ expires_at: NOW + 7200 }), NOW)).toMatch(/^good for 2/);
    expect(stateOf(key({ expires_at: NOW }), NOW)).toBe("expired");
  });

  it("says that it was revoked, whatever else", () => {
    expect(stateOf(key({ revoked_at: 5, expires_at: NOW - 1 }), NOW)).toBe("revoked");
    expect(isOver(key({ revoked_at: 5 }), NOW)).toBe(true);
  });
});

it("keys that open something come first, the newest of them before the others", () => {
  const keys = [key({ id: "old" }), key({ id: "gone", created_at: 9, revoked_at: 9 }), key({ id: "new", created_at: 5 })];
  expect(inOrder(keys, NOW).map(({ id }) => id)).toEqual(["new", "old", "gone"]);
});

it("a form without an owner and an end asks for one's own key without an end", () => {
  const form = new FormData();
  form.set("name", " ci ");
  form.set("owner", " ");
  form.append("scope", "read");
  form.append("scope", "submit");
  form.set("days", "");
  expect(wanted(form)).toEqual({ name: "ci", owner: null, scopes: ["read", "submit"], days: null });
  form.set("owner", "bob");
  form.set("days", "30");
  expect(wanted(form)).toMatchObject({ owner: "bob", days: 30 });
});
