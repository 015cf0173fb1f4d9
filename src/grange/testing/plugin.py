"""The pytest plugin of Grange: gives tests a control plane of their own."""
