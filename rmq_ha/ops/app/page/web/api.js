// What the server is asked, and what comes instead of an answer.

import { sign } from "/page/sign.js";

const DOMAIN = "rmq-ha page\n";
const LONGEST_MS = 8000;

export class Away extends Error {}
export class NoEntry extends Error {}
export class Refusal extends Error {}

async function call(path, options) {
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort(), LONGEST_MS);
  let answer, value;
  try {
    answer = await fetch(path, { ...options, signal: stop.signal, cache: "no-store" });
    value = await answer.json();
  } catch {
    throw new Away("no answer");
  } finally {
    clearTimeout(timer);
  }
  if (answer.ok) return value;
  if (answer.status === 401) throw new NoEntry(value.error);
  if (answer.status === 503) throw new Away(value.error);
  throw new Refusal(value.error || `answer ${answer.status}`);
}

export function ask(name, questions = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(questions)) if (value !== "" && value !== undefined && value !== null) query.set(key, value);
  const text = query.toString();
  return call(`/api/${name}${text ? `?${text}` : ""}`);
}

const post = (value) => call("/api/session", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(value) });

export async function enter(account, secret) {
  const { challenge } = await ask("session");
  return post({ challenge, account, signature: sign(secret, DOMAIN + challenge) });
}

export const leave = () => post({});
