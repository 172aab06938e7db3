// Evaluated in the page: texts whose contrast is below WCAG's 4.5 to 1.
() => {
  const seen = (color) => {
    const [, r, g, b, a] = color.match(/rgba?\((\d+), (\d+), (\d+)(?:, ([\d.]+))?\)/) || [0, 0, 0, 0, "0"];
    return { rgb: [r, g, b].map(Number), alpha: a === undefined ? 1 : Number(a) };
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => { const x = v / 255; return x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const found = seen(getComputedStyle(at).backgroundColor);
      if (found.alpha === 1) return found.rgb;
    }
    return [255, 255, 255];
  };
  const bad = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!own || !node.getClientRects().length || node.closest("svg, .hidden, .skip, noscript")) continue;
    const style = getComputedStyle(node), front = light(seen(style.color).rgb), back = light(behind(node));
    const ratio = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    if (ratio < 4.5) bad.push(`${node.tagName}.${node.className} "${node.textContent.slice(0, 30)}" ${ratio.toFixed(2)}`);
  }
  return bad;
}
