// A chart as an SVG file: what stands on the screen, in lines and words that can be edited.
(() => {
  const concord = (window.concord ??= {});
  const { number } = concord.figures;
  const NS = "http://www.w3.org/2000/svg";
  const TOP = 24; // for the title

  const part = (parent, tag, attributes, text) => {
    const made = document.createElementNS(NS, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
    if (text) made.textContent = text;
    parent.append(made);
    return made;
  };

  const ticks = (min, max, log) => {
    const found = [];
    if (log && max / min >= 100) {
      for (let power = Math.ceil(Math.log10(min)); power <= Math.log10(max); power += 1)
        found.push(10 ** power);
      return found;
    }
    const rough = (max - min) / 5;
    const size = 10 ** Math.floor(Math.log10(rough));
    const stride = size * ([1, 2, 5].find((n) => n * size >= rough) ?? 10);
    for (let n = Math.ceil(min / stride); n * stride <= max; n += 1) found.push(n * stride);
    return found;
  };

  // "M x y L x y …", broken where a value is missing.
  const path = (xs, values, x, y) => {
    let open = false;
    return xs
      .map((at, i) => {
        const value = values[i];
        if (value === null || value === undefined) {
          // what another curve measured here says nothing of this one
          if (value === null) open = false;
          return "";
        }
        const word = `${open ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
        open = true;
        return word;
      })
      .join("");
  };

  // `plot` is a Plot that is drawn.
  concord.svgOf = (plot) => {
    const { plot: u, page, chart, now } = plot;
    const pixel = devicePixelRatio;
    const box = Object.fromEntries(Object.entries(u.bbox).map(([name, value]) => [name, value / pixel]));
    const { inks } = page;
    const svg = document.createElementNS(NS, "svg");
    const height = u.height + TOP + 18 * (now.length > 1 ? now.length : 0);
    for (const [name, value] of Object.entries({
      xmlns: NS,
      width: u.width,
      height,
      viewBox: `0 0 ${u.width} ${height}`,
      "font-family": "sans-serif",
      "font-size": 11,
    }))
      svg.setAttribute(name, String(value));
    part(svg, "title", {}, chart.title);
    part(svg, "rect", { width: "100%", height: "100%", fill: inks.surface });
    part(
      svg,
      "text",
      { x: 8, y: 16, fill: inks["text-2"] },
      [chart.title, chart.unit].filter(Boolean).join(", "),
    );
    const stage = part(svg, "g", { transform: `translate(0 ${TOP})` });
    const inside = part(part(svg, "defs", {}), "clipPath", { id: "inside" });
    part(inside, "rect", { x: box.left, y: box.top, width: box.width, height: box.height });
    const x = (value) => box.left + u.valToPos(value, "x");
    const y = (value) => box.top + u.valToPos(value, "y");
    const floor = box.top + box.height;
    const across = (value, ink, more = {}) =>
      part(lines, "line", {
        x1: box.left,
        x2: box.left + box.width,
        y1: y(value),
        y2: y(value),
        stroke: ink,
        ...more,
      });
    const lines = part(stage, "g", { "clip-path": "url(#inside)", fill: "none" });
    const words = part(stage, "g", { fill: inks["text-2"] });
    for (const value of ticks(u.scales.y.min, u.scales.y.max, page.log)) {
      across(value, inks.line);
      part(words, "text", { x: box.left - 6, y: y(value) + 4, "text-anchor": "end" }, number(value));
    }
    for (const value of ticks(u.scales.x.min, u.scales.x.max, false))
      part(words, "text", { x: x(value), y: floor + 16, "text-anchor": "middle" }, plot.tick(value));
    for (const { value, stops } of plot.limits())
      if (!page.log || value > 0) across(value, stops ? inks.bad : inks.warn, { "stroke-dasharray": "6 4" });
    now.forEach(({ ink, dash, level }, i) => {
      const style = { stroke: ink, "stroke-dasharray": dash.join(" ") };
      const [raw, smooth] = [u.data[1 + 2 * i], u.data[2 + 2 * i]];
      const faint = page.weight && !level;
      part(lines, "path", {
        ...style,
        d: path(u.data[0], raw, x, y),
        "stroke-width": 1.5,
        opacity: faint ? 0.28 : 1,
      });
      if (faint) part(lines, "path", { ...style, d: path(u.data[0], smooth, x, y), "stroke-width": 2 });
    });
    for (const { step, severity, text, source } of plot.alerts()) {
      const at = x(plot.place(source, step));
      if (Number.isNaN(at)) continue;
      const mark = part(lines, "path", {
        d: `M${at} ${floor - 10}L${at - 6} ${floor}L${at + 6} ${floor}Z`,
        fill: severity === "critical" ? inks.bad : inks.warn,
      });
      part(mark, "title", {}, text);
    }
    if (now.length > 1)
      now.forEach(({ label, ink, dash }, i) => {
        const at = u.height + TOP + 18 * i + 8;
        part(svg, "line", {
          x1: 8,
          x2: 32,
          y1: at,
          y2: at,
          stroke: ink,
          "stroke-width": 2,
          "stroke-dasharray": dash.join(" "),
        });
        part(svg, "text", { x: 40, y: at + 4, fill: inks["text-2"] }, label);
      });
    return new XMLSerializer().serializeToString(svg);
  };
})();
