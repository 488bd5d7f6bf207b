"""Image and flow files (`io`), data sets with ground truth (`datasets`), synthetic training pairs (`synthetic`)."""
