"""Signs the certificates of nodes: for machines that join, and for nodes that renew theirs.

Owns: the decision on requests for the two signers of nodes, their certificates, and the removal of old
    requests and of bootstrap tokens that have ended.
Never: holds the key of the authority (``CertificateSigner`` does), or signs for anything but a node.
Start reading at: ``logic``.
"""
