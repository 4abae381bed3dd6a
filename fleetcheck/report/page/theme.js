document.documentElement.classList.add("js");
try {
  const theme = localStorage.getItem("fleetcheck-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // A page of a file, or one whose reader keeps nothing, has no storage: the system's theme it is.
}
