import assert from "node:assert";
import test from "node:test";
import { total } from "../src/cart.js";

test("a total is the sum of its prices", () => {
  assert.equal(total([100, 50]), 150);
});
