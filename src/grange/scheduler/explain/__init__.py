"""Why a pod waits or is on its node: attempts that are recorded, and an explanation on demand."""
