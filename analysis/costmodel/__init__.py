"""Predicts the speed-up of Points that were not launched, from acceptance and step costs measured."""
