// Evaluated in the page: what somebody who does not see it could not name.
() => {
  const bad = [];
  const named = (node) => node.getAttribute("aria-label") || node.getAttribute("aria-labelledby") || node.innerText?.trim()
    || node.labels?.[0]?.textContent.trim();
  for (const node of document.querySelectorAll("a[href], button, input, select, [role=img], [role=region]")) {
    if (node.closest("[hidden]") || (node.closest("details:not([open])") && !node.closest("summary"))) continue;
    if (!named(node)) bad.push(node.outerHTML.slice(0, 120));
  }
  const ids = [...document.querySelectorAll("[id]")].map((node) => node.id).filter(Boolean);
  ids.filter((id, i) => ids.indexOf(id) !== i).forEach((id) => bad.push(`id ${id} twice`));
  document.querySelectorAll("img:not([alt])").forEach((node) => bad.push(node.outerHTML));
  if (!document.documentElement.lang) bad.push("no language");
  if (document.querySelectorAll("main").length !== 1) bad.push("not one main");
  return bad;
}
