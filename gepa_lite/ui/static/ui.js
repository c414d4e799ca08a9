"use strict";
// Asks whether anything is new, and then puts the new page's live sections in place of the old ones. The server says how soon to ask again:
// two seconds, and longer where the page costs more or nobody works on the run.
(() => {
  const body = document.body;
  const source = body.dataset.now;
  const words = document.getElementById("live");
  if (!source || !words) return;
  let mark = body.dataset.mark;
  let pace = Number(body.dataset.pace) || 2000;
  let said = words.textContent;
  let failed = 0;

  const places = (root, selector) => Array.from(root.querySelectorAll(selector));

  function renewSection(old, fresh) {
    const active = document.activeElement;
    if (old.contains(active) && active.matches("input:not([type=radio]), select, textarea")) return;
    if (old.innerHTML === fresh.innerHTML) return;
    const open = places(old, "details").map((item) => item.open);
    const checked = places(old, "input[type=radio]:checked").map((item) => item.id);
    const scrolled = places(old, ".scroll, .wide, .text").map((item) => [item.scrollTop, item.scrollLeft]);
    const focus = old.contains(active) ? active.id || active.getAttribute("href") : null;
    old.replaceChildren(...Array.from(fresh.childNodes).map((node) => document.importNode(node, true)));
    places(old, "details").forEach((item, place) => { if (place < open.length) item.open = open[place]; });
    checked.forEach((id) => { const item = document.getElementById(id); if (item) item.checked = true; });
    places(old, ".scroll, .wide, .text").forEach((item, place) => {
      if (place < scrolled.length) [item.scrollTop, item.scrollLeft] = scrolled[place];
    });
    if (focus) {
      const again = places(old, "[id], [href]").find((item) => item.id === focus || item.getAttribute("href") === focus);
      if (again) again.focus({ preventScroll: true });
    }
  }

  async function renew() {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (!answer.ok) throw new Error(String(answer.status));
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const sections = places(document, "[data-live]").map((old) => [old, page.getElementById(old.id)]);
    if (sections.some(([, fresh]) => !fresh)) location.reload();
    else sections.forEach(([old, fresh]) => renewSection(old, fresh));
    said = page.getElementById("live").textContent;
    pace = Number(answer.headers.get("x-next-look")) || pace;
    return page.body.dataset.mark;
  }

  async function look() {
    try {
      const answer = await fetch(source, { headers: { accept: "application/json" } });
      if (!answer.ok) throw new Error(String(answer.status));
      const now = (await answer.json()).mark;
      if (now !== mark) mark = await renew();
      failed = 0;
      words.textContent = said;
    } catch (error) {
      failed += 1;
      words.textContent = "Not reached; trying again";
    }
    setTimeout(look, Math.max(document.hidden ? 15000 : 0, failed ? Math.min(30000, 2000 * 2 ** Math.min(failed, 4)) : pace));
  }
  setTimeout(look, 1000);
})();
