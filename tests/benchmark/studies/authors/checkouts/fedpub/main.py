"""The entry point of the played code."""


def set_config(args):
    args.checkpt_path, args.log_path = f"{args.base_path}/checkpoints", f"{args.base_path}/logs"
    return args
