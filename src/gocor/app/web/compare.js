element.addEventListener("input", (event) => {
  const compare = event.target.closest(".gc-compare");
  if (!compare) return;
  compare.style.setProperty("--at", `${event.target.value}%`);
  compare.style.setProperty("--share", event.target.value / 100);
});
