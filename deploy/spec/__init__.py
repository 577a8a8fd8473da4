"""The declaration that users write, composed of the packages' slices."""
