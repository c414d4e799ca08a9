"""What comes after shipping: two bundles side by side, and a bundle on new data, another model or a changed judge."""
