// The reference image: a click or a tap picks a pixel, the arrow keys move it. Sliders of compared pictures move them.
let timer = null;
let focused = false;

function mark(frame, x, y) {
  const why = frame.closest(".gc-why");
  const width = Number(why.dataset.width), height = Number(why.dataset.height);
  x = Math.max(0, Math.min(width - 1, Math.round(x)));
  y = Math.max(0, Math.min(height - 1, Math.round(y)));
  why.dataset.x = x;
  why.dataset.y = y;
  const ring = frame.querySelector(".gc-ring");
  ring.style.left = `${(100 * (x + 0.5)) / width}%`;
  ring.style.top = `${(100 * (y + 0.5)) / height}%`;
  clearTimeout(timer);
  timer = setTimeout(() => trigger("pick", { x, y }), 120);
}

element.addEventListener("click", (event) => {
  const frame = event.target.closest(".gc-pick");
  if (!frame) return;
  const box = frame.getBoundingClientRect(), why = frame.closest(".gc-why");
  const x = ((event.clientX - box.left) / box.width) * why.dataset.width - 0.5;
  const y = ((event.clientY - box.top) / box.height) * why.dataset.height - 0.5;
  mark(frame, x, y);
});

element.addEventListener("keydown", (event) => {
  const frame = event.target.closest(".gc-pick");
  const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  if (!frame || !(event.key in steps)) return;
  event.preventDefault();
  const why = frame.closest(".gc-why"), step = event.shiftKey ? 32 : 8;
  const [dx, dy] = steps[event.key];
  mark(frame, Number(why.dataset.x) + step * dx, Number(why.dataset.y) + step * dy);
});

element.addEventListener("focusin", (event) => { focused = !!event.target.closest(".gc-pick"); });
element.addEventListener("focusout", (event) => { if (event.relatedTarget) focused = false; });
watch("value", () => {
  if (focused) element.querySelector(".gc-pick")?.focus({ preventScroll: true });
});
