"""GOCor's iterations: the specification, its faster forms, and the choice between them."""
