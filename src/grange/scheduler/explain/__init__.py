"""Why a pod is where it is, or why it still waits: reasons kept, and reasons found on demand."""
