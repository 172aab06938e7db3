// Elements from data. Text is set as text alone: what users named things cannot become markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "data") node.page = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(9)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

const isSame = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName
  && (a.nodeType !== 1 || (a.getAttribute("data-key") === b.getAttribute("data-key")));

const keyOf = (node) => (node.nodeType === 1 ? node.getAttribute("data-key") : null);
const hasKey = (node, key) => Boolean(key) && [...node.children].some((child) => keyOf(child) === key);

// Makes `old` look like `wanted` and keeps what is equal: focus, selection and scrolling stay.
export function patch(old, wanted) {
  if (old.nodeType === 3) {
    if (old.data !== wanted.data) old.data = wanted.data;
    return;
  }
  if (old.matches?.(".cursor, .when")) return;
  for (const { name } of [...old.attributes]) if (!wanted.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name); // people open details
  for (const { name, value } of wanted.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (wanted.page !== undefined) old.page = wanted.page;
  if (old.nodeName === "INPUT" || old.nodeName === "SELECT") return;
  const next = [...wanted.childNodes], staying = new Set(next.map(keyOf).filter(Boolean));
  next.forEach((child, place) => {
    const here = old.childNodes[place];
    if (!here) old.append(child);
    else if (isSame(here, child)) patch(here, child);
    else if (staying.has(keyOf(here)) && !hasKey(old, keyOf(child))) old.insertBefore(child, here); // a new row before known ones
    else here.replaceWith(child);
  });
  [...old.childNodes].slice(next.length).forEach((child) => child.remove());
}

export function show(place, ...children) {
  const wanted = place.cloneNode(false);
  fill(wanted, {}, children);
  patch(place, wanted);
}
