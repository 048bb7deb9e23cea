// The table of all prompts: filtered, sorted, and drawn where it is in view. Data is only ever text.
for (const box of document.querySelectorAll(".all-prompts")) {
  const { head, rows } = JSON.parse(box.querySelector("script").textContent);
  const HEIGHT = 28, SPARE = 10;  // pixels of a row; rows drawn beyond the view
  const view = box.querySelector(".rows"), body = box.querySelector("tbody");
  const [search, policy] = box.querySelectorAll("input, select"), count = box.querySelector("output");
  const chosen = head.indexOf("chosen by");
  const texts = rows.map(row => row.join("\t").toLowerCase());
  let order = rows.map((_, i) => i), shown = order, by = -1, up = true;
  const draw = () => {
    const first = Math.max(0, Math.floor(view.scrollTop / HEIGHT) - SPARE);
    const last = Math.min(shown.length, first + Math.ceil(view.clientHeight / HEIGHT) + 2 * SPARE);
    const space = size => {
      const row = document.createElement("tr");
      row.style.height = `${size * HEIGHT}px`;
      return row;
    };
    body.replaceChildren(space(first), ...shown.slice(first, last).map(i => {
      const row = document.createElement("tr");
      for (const value of rows[i]) {
        const cell = document.createElement("td");
        cell.textContent = value === null ? "–" : value;
        cell.title = cell.textContent;
        row.append(cell);
      }
      return row;
    }), space(shown.length - last));
    count.textContent = `${shown.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} prompts`;
  };
  const filter = () => {
    const words = search.value.toLowerCase();
    shown = order.filter(i => texts[i].includes(words)
      && (!policy.value || rows[i][chosen].split(", ").includes(policy.value)));
    view.scrollTop = 0;
    draw();
  };
  box.querySelectorAll("th button").forEach((button, column) => button.addEventListener("click", () => {
    up = by === column ? !up : true;
    by = column;
    const sign = up ? 1 : -1;
    order = rows.map((_, i) => i).sort((i, j) => {
      const a = rows[i][column], b = rows[j][column];
      if (a === null || b === null) return (a === null) - (b === null);  // unknown comes last
      return sign * (typeof a === "number" ? a - b : a < b ? -1 : a > b ? 1 : 0);
    });
    box.querySelectorAll("th").forEach((th, at) =>
      th.setAttribute("aria-sort", at === column ? (up ? "ascending" : "descending") : "none"));
    filter();
  }));
  search.addEventListener("input", filter);
  policy.addEventListener("change", filter);
  view.addEventListener("scroll", draw);
  box.hidden = false;
  draw();
}
