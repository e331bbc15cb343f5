"""Features on the workers: each folder can be taken away. The core imports none of them."""
