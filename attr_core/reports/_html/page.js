"use strict";
// The page works without this: claims are links to their panels. Here they become buttons that open them.
(() => {
  const claims = [...document.querySelectorAll("a.claim")];
  const panelOf = (link) => document.getElementById(link.getAttribute("href").slice(1));
  const wide = matchMedia("(min-width: 60rem)");

  const mark = () => {
    for (const link of claims) {
      const open = Boolean(panelOf(link)?.open);
      link.setAttribute("aria-expanded", String(open));
      link.classList.toggle("current", open);
    }
  };
  const show = (panel) => {
    for (const other of document.querySelectorAll('details[name="claim"][open]')) {
      if (other !== panel) other.open = false;
    }
    panel.open = true;
    const summary = panel.querySelector("summary");
    summary.focus({ preventScroll: true });
    const top = summary.getBoundingClientRect().top;
    if (!wide.matches || top < 0 || top > innerHeight * 0.7) summary.scrollIntoView({ block: "start" });
  };

  for (const link of claims) {
    const panel = panelOf(link);
    if (!panel) continue;
    link.setAttribute("role", "button");
    link.setAttribute("aria-controls", panel.id);
    link.addEventListener("click", (event) => {
      event.preventDefault();
      show(panel);
    });
    link.addEventListener("keydown", (event) => {
      if (event.key === " ") {
        event.preventDefault();
        show(panel);
      }
    });
    panel.addEventListener("toggle", mark);
    panel.addEventListener("pointerenter", () => link.classList.add("near"));
    panel.addEventListener("pointerleave", () => link.classList.remove("near"));
    panel.addEventListener("keydown", (event) => {
      if (event.key === "Escape") link.focus();
    });
  }
  mark();

  const openTarget = (id) => {
    const target = document.getElementById(id);
    if (target?.matches("details.segment")) target.open = true;
    if (target?.matches('details[name="claim"]')) show(target);
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.('a[href^="#"]:not(.claim)');
    if (link) openTarget(link.getAttribute("href").slice(1));
  });
  openTarget(location.hash.slice(1));

  addEventListener("beforeprint", () => {
    for (const panel of document.querySelectorAll("details")) {
      panel.removeAttribute("name");
      panel.open = true;
    }
  });
})();
