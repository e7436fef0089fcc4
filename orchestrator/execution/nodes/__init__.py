"""What nodes say of themselves before they are measured."""
