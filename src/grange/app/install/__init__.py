"""What a Kubernetes cluster is given to run Grange: our kinds, permissions, and a Deployment, as manifests."""
