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

// Makes `old` look like `wanted` and keeps what is equal: focus, selection and scrolling stay.
export function patch(old, wanted) {
  if (old.nodeType === 3) {
    if (old.data !== wanted.data) old.data = wanted.data;
    return;
  }
  if (old.matches?.(".cursor, .when")) return;
  for (const { name } of [...old.attributes]) if (!wanted.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of wanted.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (wanted.page !== undefined) old.page = wanted.page;
  if (old.nodeName === "INPUT" || old.nodeName === "SELECT") return;
  const now = [...old.childNodes], next = [...wanted.childNodes];
  next.forEach((child, place) => {
    if (place >= now.length) old.append(child);
    else if (isSame(now[place], child)) patch(now[place], child);
    else now[place].replaceWith(child);
  });
  now.slice(next.length).forEach((child) => child.remove());
}

export function show(place, ...children) {
  const wanted = place.cloneNode(false);
  fill(wanted, {}, children);
  patch(place, wanted);
}
