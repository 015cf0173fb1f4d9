"""What a Kubernetes cluster is given to run Grange: our kinds, rights, and a Deployment, as manifests."""
