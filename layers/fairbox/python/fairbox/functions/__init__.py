"""The handlers of the Lambda functions, a module each: a release changes them with the library."""
