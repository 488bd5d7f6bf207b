// Ctrl+V gives a copied image to the input under the pointer or with the focus, else to the first empty one.
// gradio's button for pasting needs a permission, and a browser has it on localhost and over HTTPS only.
const NAMES = ["reference", "query"];

function chosen() {
  const pointed = NAMES.find((name) => document.querySelector(`#${name}:hover, #${name}:focus-within`));
  return pointed ?? NAMES.find((name) => !document.querySelector(`#${name} img`)) ?? "query";
}

async function give(name, file) {
  const box = document.getElementById(name);
  box.querySelector('[aria-label="Remove Image"]')?.click();
  box.querySelector('[aria-label="Upload file"]')?.click();
  for (let tries = 0; tries < 40; tries++) {
    await new Promise((done) => setTimeout(done, 50));
    const input = box.querySelector("input[type=file]");
    if (!input || box.querySelector("img")) continue;
    const files = new DataTransfer();
    files.items.add(file);
    input.files = files.files;
    input.dispatchEvent(new Event("change", { bubbles: true }));
    return;
  }
}

document.addEventListener("paste", (event) => {
  const file = [...(event.clipboardData?.files ?? [])].find(({ type }) => type.startsWith("image/"));
  if (!file) return; // text, for a text field
  event.preventDefault();
  give(chosen(), file);
});
