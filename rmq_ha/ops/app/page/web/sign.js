// HMAC-SHA256, as browsers offer theirs over https only. The secret never leaves this page.

const primes = [];
for (let n = 2; primes.length < 64; n += 1) if (primes.every((p) => n % p)) primes.push(n);
const fraction = (x) => ((x - Math.floor(x)) * 4294967296) | 0;
const K = primes.map((p) => fraction(Math.cbrt(p)));
const START = primes.slice(0, 8).map((p) => fraction(Math.sqrt(p)));
const turn = (x, n) => (x >>> n) | (x << (32 - n));

export function sha256(data) {
  const size = ((data.length + 72) >> 6) << 6;
  const padded = new Uint8Array(size);
  padded.set(data);
  padded[data.length] = 128;
  const view = new DataView(padded.buffer);
  view.setUint32(size - 8, Math.floor(data.length / 536870912));
  view.setUint32(size - 4, data.length << 3);
  const state = START.slice(), w = new Int32Array(64);
  for (let at = 0; at < size; at += 64) {
    for (let i = 0; i < 64; i += 1) {
      if (i < 16) { w[i] = view.getInt32(at + 4 * i); continue; }
      const a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + w[i - 7] + (turn(a, 7) ^ turn(a, 18) ^ (a >>> 3)) + (turn(b, 17) ^ turn(b, 19) ^ (b >>> 10));
    }
    let [a, b, c, d, e, f, g, k] = state;
    for (let i = 0; i < 64; i += 1) {
      const one = (k + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + K[i] + w[i]) | 0;
      const two = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      k = g; g = f; f = e; e = (d + one) | 0; d = c; c = b; b = a; a = (one + two) | 0;
    }
    [a, b, c, d, e, f, g, k].forEach((value, i) => { state[i] = (state[i] + value) | 0; });
  }
  const out = new DataView(new ArrayBuffer(32));
  state.forEach((value, i) => out.setInt32(4 * i, value));
  return new Uint8Array(out.buffer);
}

export function sign(secret, text) {
  const encoder = new TextEncoder();
  let key = encoder.encode(secret);
  if (key.length > 64) key = sha256(key);
  const inner = new Uint8Array(64).fill(0x36), outer = new Uint8Array(64).fill(0x5c);
  key.forEach((byte, i) => { inner[i] ^= byte; outer[i] ^= byte; });
  const joined = (a, b) => { const all = new Uint8Array(a.length + b.length); all.set(a); all.set(b, a.length); return all; };
  const digest = sha256(joined(outer, sha256(joined(inner, encoder.encode(text)))));
  return btoa(String.fromCharCode(...digest));
}
