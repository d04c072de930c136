#include "run.h"
void
scale_write_table(void)
{
}
