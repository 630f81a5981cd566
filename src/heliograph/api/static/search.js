// The search page of the static docs: finds what `Docs.search` finds, in the same order. ENTRIES is in search-index.js.
const RANK_BY_KIND = { API: 0, Field: 1 };
const RESULTS_MAX = 50, TEXT_RESULTS_MAX = 5;
const hasAll = (words, ...texts) => words.every((word) => texts.join(" ").toLowerCase().includes(word));
const search = (query) => {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean), exact = query.toLowerCase().trim();
  const isHit = ([kind, title, about, , text]) => hasAll(words, title, ...(kind === "Field" ? [] : [about, text]));
  const isByText = ([, title, about]) => !hasAll(words, title, about);
  const count = ([, , , , text]) => words.reduce((sum, word) => sum + text.toLowerCase().split(word).length - 1, 0);
  const rank = (entry) => 4 * (entry[1].toLowerCase() !== exact) + 3 * isByText(entry) + (RANK_BY_KIND[entry[0]] ?? 2);
  const difference = (one, other) => rank(one) - rank(other) || (isByText(one) && isByText(other) ? count(other) - count(one) : 0);
  let byText = 0;
  return words.length ? ENTRIES.filter(isHit).sort(difference)
    .filter((entry) => entry[0] !== "Guide" || !isByText(entry) || ++byText <= TEXT_RESULTS_MAX).slice(0, RESULTS_MAX) : [];
};
const element = (name, words, attributes = {}) => Object.assign(document.createElement(name), { textContent: words, ...attributes });
const show = (query) => {
  const items = search(query).map(([kind, title, about, href]) => {
    const link = element("a", "", { href }), item = element("li", "");
    link.append(element("span", kind, { className: "type" }), " ", element("strong", title), " ");
    link.append(element("span", about, { className: "quiet" }));
    item.append(link);
    return item;
  });
  document.getElementById("found").replaceChildren(...items);
  document.getElementById("none").hidden = items.length > 0 || !query.trim();
};
const box = document.querySelector("main input[type=search]");
box.value = new URLSearchParams(location.search).get("q") ?? "";
box.addEventListener("input", () => show(box.value));
show(box.value);
